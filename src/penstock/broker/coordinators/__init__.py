"""Coordinators decide for groups, and give out producers' ids."""
