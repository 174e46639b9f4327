"""Amazon Bedrock Converse: `bedrock-converse`."""
