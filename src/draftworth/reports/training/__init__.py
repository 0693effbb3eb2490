"""The page of a training while it runs and when it has ended: `RUN/fit/progress.html`."""
