"""What is done with a card's requests and refusals: rounds of them copied, updates in pieces, redone after an error."""
