module evenkeel.io/bench/noopextender

go 1.26
