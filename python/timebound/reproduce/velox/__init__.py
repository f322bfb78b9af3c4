"""The delay model of DDS in the Velox paper (Hakiri and others 2013, section 2.1), as printed and as it should be read."""
