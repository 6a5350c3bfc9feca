// SPDX-License-Identifier: Apache-2.0
// A do-nothing extender: the least that any correct extender costs kube-scheduler.
//
// It keeps every node, or with `-keep N` the next N of the list in turn, scores every node alike
// and passes every preemption candidate through.
// It decodes nothing: answers are slices of the request, found by their bytes, so that what
// remains is kube-scheduler's own encoding and decoding. It prints its address; GET /calls
// tells how often each verb was asked.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync/atomic"
)

// Keys are the field names, as kube-scheduler writes them: its structs have no JSON tags
// (staging/src/k8s.io/kube-scheduler/extender/v1/types.go). NodeNames is the last field, and
// inside the pod its quotes would be escaped.
var (
	names   = []byte(`,"NodeNames":`)
	victims = []byte(`,"NodeNameToMetaVictims":`)
)

var keep = flag.Int("keep", 0, "how many nodes filter leaves; 0 is all")

var filters, prioritizations, preemptions atomic.Int64

func main() {
	flag.Parse()
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
	if list := last(w, r, names); list != nil {
		answer(w, []byte(`{"NodeNames":`), kept(list), []byte(`}`))
	}
}

// kept returns the names that filter leaves.
func kept(list []byte) []byte {
	names := bytes.Split(list[1:len(list)-1], []byte(","))
	if *keep == 0 || *keep >= len(names) {
		return list
	}
	start := int(filters.Load()) * *keep % len(names)
	names = append(names[start:], names[:start]...)[:*keep]
	return slices.Concat([]byte("["), bytes.Join(names, []byte(",")), []byte("]"))
}

func prioritize(w http.ResponseWriter, r *http.Request) {
	prioritizations.Add(1)
	list := last(w, r, names)
	if list == nil {
		return
	}
	if len(list) < 4 { // [] or null
		answer(w, []byte(`[]`))
		return
	}
	scores := bytes.ReplaceAll(list[1:len(list)-1], []byte(`","`), []byte(`","Score":5},{"Host":"`))
	answer(w, []byte(`[{"Host":`), scores, []byte(`,"Score":5}]`))
}

func preempt(w http.ResponseWriter, r *http.Request) {
	preemptions.Add(1)
	if found := last(w, r, victims); found != nil {
		answer(w, []byte(`{"NodeNameToMetaVictims":`), found, []byte(`}`))
	}
}

func calls(w http.ResponseWriter, _ *http.Request) {
	answer(w, fmt.Appendf(nil, `{"filter":%d,"prioritize":%d,"preempt":%d}`,
		filters.Load(), prioritizations.Load(), preemptions.Load()))
}

// last returns the value of the last field of a request.
func last(w http.ResponseWriter, r *http.Request, key []byte) []byte {
	body, err := io.ReadAll(r.Body)
	body = bytes.TrimSpace(body)
	start := bytes.LastIndex(body, key)
	if err != nil || start < 0 {
		http.Error(w, fmt.Sprintf("no %s: %v", key, err), http.StatusBadRequest)
		return nil
	}
	return body[start+len(key) : len(body)-1]
}

// answer sends a whole body with its length: a chunked one costs the scheduler a connection.
func answer(w http.ResponseWriter, parts ...[]byte) {
	body := bytes.Join(parts, nil)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	if _, err := w.Write(body); err != nil {
		log.Print(err)
	}
}
