"""What each message of a team costs and is worth."""
