"""A team behind one OpenAI-compatible URL (extra `serve`).

Reading order: http_error, schema, dialects (the wire format); budgets, guard (what may be spent);
backend, team_backend, and for a foreign Actor upstream, relay, proxy (who answers); admission,
monitoring, in_flight, app, http_server (HTTP); serving (what `tacit serve` does).
"""
