"""Rules for a clip that nobody should choose: experiments measure how much worse they are."""
