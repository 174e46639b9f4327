"""The commands, one module each; a command's module is imported when the command is used."""
