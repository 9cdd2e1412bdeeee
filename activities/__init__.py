"""The stages of the shipped pipelines, under the pipelines' names."""
