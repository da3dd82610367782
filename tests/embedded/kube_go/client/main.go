// A client of Kubernetes on client-go and controller-runtime, for the tests of the embedded API.
//
//	kube-client encode          JSON objects on stdin, one a line; prints each as protobuf in base64
//	kube-client decode          the opposite: what Go reads in these bytes, as JSON
//	kube-client controller      a manager with leader election, caches, and writes of all kinds
//	kube-client pods POOL       the leader creates Pods until there are as many as the RunnerPool asks for
//
// It reads the kubeconfig that KUBECONFIG names, and prints one JSON object a line. It ends when stdin does.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sync"

	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
)

var output sync.Mutex

// say prints an event for the test that runs this program.
func say(event string, fields map[string]any) {
	if fields == nil {
		fields = map[string]any{}
	}
	fields["event"] = event
	output.Lock()
	defer output.Unlock()
	if err := json.NewEncoder(os.Stdout).Encode(fields); err != nil {
		os.Exit(3)
	}
}

func untilStdinEnds() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	return ctx
}

func main() {
	ctrl.SetLogger(klog.Background())
	var err error
	switch {
	case len(os.Args) == 2 && os.Args[1] == "encode":
		err = encode(os.Stdin)
	case len(os.Args) == 2 && os.Args[1] == "decode":
		err = decode(os.Stdin)
	case len(os.Args) == 2 && os.Args[1] == "controller":
		err = controller(untilStdinEnds())
	case len(os.Args) == 3 && os.Args[1] == "pods":
		err = pods(untilStdinEnds(), os.Args[2])
	default:
		err = fmt.Errorf("usage: kube-client encode | decode | controller | pods POOL")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
