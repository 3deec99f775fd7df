"""Alembic's entry: runs the migrations on the connection that `upgrade` opened."""

from alembic import context

from agentworld.pool.schema import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    version_table_schema=context.config.attributes["schema"],
    render_as_batch=True,
    transactional_ddl=True,
)
with context.begin_transaction():
    context.run_migrations()
