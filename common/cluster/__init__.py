"""Reading a cluster: wire structs, compact records, the state that watches fill, snapshots."""
