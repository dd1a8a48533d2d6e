"""Plans on their way to scripts, and in the form in which a run is put beside them.

It does not know how the server chooses them.

Read `plan_client` (requests to the server, and who asks for newer plans), `shared_plans` (all devices go over
to a plan at the same iteration) and `planned` (what a plan says of an iteration).
"""
