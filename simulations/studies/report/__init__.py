"""`fedhist report`: one HTML page."""
