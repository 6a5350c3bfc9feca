// A do-nothing extender: the least that any correct extender costs kube-scheduler.
//
// It decodes what it is asked, keeps every node, scores every node alike and passes every
// preemption candidate through. It prints its address; GET /calls tells how often each verb
// was asked.
package main

import (
	"encoding/json"
	"fmt"
	"log"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
)

// Keys are the field names, as kube-scheduler writes them: its structs have no JSON tags
// (staging/src/k8s.io/kube-scheduler/extender/v1/types.go).
type args struct {
	Pod       json.RawMessage
	NodeNames []string
}

type filterResult struct {
	NodeNames                  []string
	FailedNodes                map[string]string
	FailedAndUnresolvableNodes map[string]string
	Error                      string
}

type hostPriority struct {
	Host  string
	Score int64
}

type preemption struct {
	NodeNameToMetaVictims map[string]json.RawMessage
}

var filters, prioritizations, preemptions atomic.Int64

func main() {
	http.HandleFunc("POST /filter", filter)
	http.HandleFunc("POST /prioritize", prioritize)
	http.HandleFunc("POST /preempt", preempt)
	http.HandleFunc("GET /calls", calls)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(listener.Addr())
	log.Fatal(http.Serve(listener, nil))
}

func filter(w http.ResponseWriter, r *http.Request) {
	filters.Add(1)
	var asked args
	if decoded(w, r, &asked) {
		answer(w, filterResult{NodeNames: asked.NodeNames})
	}
}

func prioritize(w http.ResponseWriter, r *http.Request) {
	prioritizations.Add(1)
	var asked args
	if !decoded(w, r, &asked) {
		return
	}
	scores := make([]hostPriority, len(asked.NodeNames))
	for i, name := range asked.NodeNames {
		scores[i] = hostPriority{name, 5}
	}
	answer(w, scores)
}

func preempt(w http.ResponseWriter, r *http.Request) {
	preemptions.Add(1)
	var asked preemption
	if decoded(w, r, &asked) {
		answer(w, asked)
	}
}

func calls(w http.ResponseWriter, _ *http.Request) {
	answer(w, map[string]int64{
		"filter":     filters.Load(),
		"prioritize": prioritizations.Load(),
		"preempt":    preemptions.Load(),
	})
}

func decoded(w http.ResponseWriter, r *http.Request, into any) bool {
	if err := json.NewDecoder(r.Body).Decode(into); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return false
	}
	return true
}

// answer sends a whole body with its length: a chunked one costs the scheduler a connection.
func answer(w http.ResponseWriter, value any) {
	body, err := json.Marshal(value)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	if _, err := w.Write(body); err != nil {
		log.Print(err)
	}
}
