"""Tables, pictures and pages: what every command shows."""
