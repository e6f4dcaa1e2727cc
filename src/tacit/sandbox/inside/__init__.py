"""Programs that run inside the sandbox, shipped to it as source text: standard library only.

They import nothing of Tacit but each other, because Tacit is not there to be imported.
"""
