"""Reports: one self-contained page per command, all from the same drawings (`rendering.figures`)."""
