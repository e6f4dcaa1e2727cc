"""A team behind one OpenAI-compatible URL (extra `serve`).

Reading order: problem, schema, conversation (the wire format); keys, gate, metrics (what guards and
counts); backend, team, proxy (who answers); app, server (HTTP); command (what `tacit serve` does).
"""
