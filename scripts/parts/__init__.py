"""What the programs beside this folder are made of; nothing here is run by itself."""
