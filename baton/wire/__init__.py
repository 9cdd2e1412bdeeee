"""What every record shares: JSON, canonical bytes, identifiers, money and text that is safe to show."""
