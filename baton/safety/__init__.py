"""The scan for injected instructions, its policy and its waivers."""
