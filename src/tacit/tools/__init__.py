"""The tools that come with Tacit: code in our sandbox, visible tests, own documents, MCP servers.

`team.tools` finds them by name. Those that run code wait for a free processor before their time
begins, so that a busy machine does not change what an agent is told.
"""
