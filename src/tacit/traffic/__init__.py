"""Where a team's tokens, money and time go: an audit that needs no right answers."""
