"""Audits of a team's episodes, its own or recorded ones: where tokens, money and time go."""
