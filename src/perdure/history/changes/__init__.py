"""From the edits that a caller asks for to the patch that a commit stores."""
