// SPDX-License-Identifier: Apache-2.0

// What runs in the containers of real nodes: it uses as much CPU as it is told and nothing else.
// Without arguments it waits, which is what the sandbox of a pod does.
package main

import (
	"flag"
	"os"
	"os/signal"
	"syscall"
	"time"
)

const (
	turn = 20 * time.Millisecond
	// On a busy machine it catches up, but never with more than this at once.
	mostOwed = 500 * time.Millisecond
)

func main() {
	milli := flag.Int("milli", 0, "thousandths of a core to use")
	exitAfter := flag.Duration("exit-after", 0, "fail after this time; 0 for never")
	stopAfter := flag.Duration("stop-after", 0, "how long to go on after SIGTERM")
	flag.Parse()
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
	if *exitAfter > 0 {
		time.AfterFunc(*exitAfter, func() { os.Exit(1) })
	}
	go func() {
		<-stop
		time.Sleep(*stopAfter)
		os.Exit(0)
	}()
	if *milli == 0 {
		select {}
	}
	burn(*milli)
}

// burn follows the CPU time that the kernel counts, not the clock: others on the machine delay
// it and do not change what it uses.
func burn(milli int) {
	began, before := time.Now(), used()
	for {
		time.Sleep(turn)
		owed := time.Since(began)*time.Duration(milli)/1000 - (used() - before)
		if owed > mostOwed {
			before -= owed - mostOwed
			owed = mostOwed
		}
		for end := used() + owed; used() < end; {
			for i := 0; i < 10000; i++ {
				sink += i
			}
		}
	}
}

var sink int

func used() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		os.Exit(2)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
