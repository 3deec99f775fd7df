"""What people and apps say of trajectories and steps, made into what training can use.

Each part is a module of its own: `corrections` (edited replies as targets and as pairs), `comparisons` (branches of one
prompt, by comparison or by rating), `implicit` (regenerate, edit and abandon, read from events) and `agreement`
(several annotators of one target).
"""
