// SPDX-License-Identifier: Apache-2.0
// kube-scheduler with the load-aware plugins of Trimaran (sigs.k8s.io/scheduler-plugins), to
// compare with. Its own cmd/scheduler also has the other plugins of that module, which need
// more modules and are not used here.
package main

import (
	"os"

	"k8s.io/component-base/cli"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"

	_ "sigs.k8s.io/scheduler-plugins/apis/config/scheme"
	"sigs.k8s.io/scheduler-plugins/pkg/trimaran/loadvariationriskbalancing"
	"sigs.k8s.io/scheduler-plugins/pkg/trimaran/targetloadpacking"
)

func main() {
	os.Exit(cli.Run(app.NewSchedulerCommand(
		app.WithPlugin(loadvariationriskbalancing.Name, loadvariationriskbalancing.New),
		app.WithPlugin(targetloadpacking.Name, targetloadpacking.New),
	)))
}
