"""A team behind one OpenAI-compatible URL (extra `serve`).

Reading order: problem, schema, conversation (the wire format); keys, gate, metrics (what guards and
counts); backend, team, reply, proxy (who answers); dialects, app, connection, server (HTTP);
command (what `tacit serve` does).
"""
