"""What a program declares about an agent."""
