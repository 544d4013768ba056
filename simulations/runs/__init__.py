"""One run: options, session, data ledger, results folder."""
