"""What all records share: JSON, canonical bytes, identifiers, money and text that is safe to show."""
