"""What people and apps say of trajectories and steps, made into what training can use.

Each part is a module of its own: `content` (which reply was seen), `corrections` (edited replies as targets and as
pairs), `comparisons` (branches of one prompt, by rating), `implicit` (regenerate, edit and abandon; pure) with
`following` (from the events of a pool), `agreement` (of several annotators; pure) with `annotators` (from a pool).
"""
