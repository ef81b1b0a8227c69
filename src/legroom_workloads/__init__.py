"""The reference workloads: five real trainings that use legroom's public interface only, as a user would."""
