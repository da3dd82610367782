package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

const (
	election       = "runners-controller.tuist.dev"
	leaseNamespace = "tuist"
	namespace      = "tuist-runners"
	annotation     = "tests.runyard.dev/seen"
	patience       = 30 * time.Second
)

// counted reports the types of the contents of every request and its answer.
type counted struct{ inner http.RoundTripper }

func (c counted) RoundTrip(request *http.Request) (*http.Response, error) {
	answer, err := c.inner.RoundTrip(request)
	if err == nil {
		say("request", map[string]any{
			"method": request.Method, "path": request.URL.Path, "query": request.URL.RawQuery,
			"accept": request.Header.Get("Accept"), "sent": request.Header.Get("Content-Type"),
			"status": answer.StatusCode, "received": answer.Header.Get("Content-Type"),
		})
	}
	return answer, err
}

func newManager() (manager.Manager, error) {
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return nil, err
	}
	config.QPS, config.Burst = 100, 100
	config.UserAgent = "kube-client/1.0"
	config.Wrap(func(inner http.RoundTripper) http.RoundTripper { return counted{inner} })
	leaseDuration, renewDeadline, retryPeriod := leaseTimes()
	return ctrl.NewManager(config, ctrl.Options{
		Scheme:                        newScheme(),
		Metrics:                       metricsserver.Options{BindAddress: "0"},
		HealthProbeBindAddress:        "0",
		Cache:                         cache.Options{DefaultNamespaces: map[string]cache.Config{namespace: {}}},
		LeaderElection:                true,
		LeaderElectionID:              election,
		LeaderElectionNamespace:       leaseNamespace,
		LeaderElectionReleaseOnCancel: true,
		LeaseDuration:                 &leaseDuration,
		RenewDeadline:                 &renewDeadline,
		RetryPeriod:                   &retryPeriod,
	})
}

// leaseTimes are the defaults of client-go, or a fraction of them for a test that has no time.
func leaseTimes() (time.Duration, time.Duration, time.Duration) {
	if os.Getenv("LEASE_SECONDS") != "" {
		if whole, err := time.ParseDuration(os.Getenv("LEASE_SECONDS") + "s"); err == nil {
			return whole, whole * 2 / 3, whole / 10
		}
	}
	return 15 * time.Second, 10 * time.Second, 2 * time.Second
}

// seen annotates each Pod that it is told about and sets its status.
type seen struct{ client client.Client }

func (s seen) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	var pod corev1.Pod
	if err := s.client.Get(ctx, request.NamespacedName, &pod); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if pod.Annotations[annotation] == "" {
		before := pod.DeepCopy()
		metav1.SetMetaDataAnnotation(&pod.ObjectMeta, annotation, "yes")
		if err := s.client.Patch(ctx, &pod, client.StrategicMergeFrom(before)); err != nil {
			return reconcile.Result{}, err
		}
	}
	if pod.Status.Phase != corev1.PodRunning {
		pod.Status.Phase = corev1.PodRunning
		pod.Status.PodIP = "10.0.0.7"
		if err := s.client.Status().Update(ctx, &pod); err != nil {
			return reconcile.Result{}, err
		}
	}
	say("reconciled", map[string]any{"name": pod.Name, "phase": string(pod.Status.Phase)})
	return reconcile.Result{}, nil
}

func controller(ctx context.Context) error {
	mgr, err := newManager()
	if err != nil {
		return err
	}
	if err := ctrl.NewControllerManagedBy(mgr).For(&corev1.Pod{}).Complete(seen{mgr.GetClient()}); err != nil {
		return err
	}
	leads := manager.RunnableFunc(func(ctx context.Context) error {
		say("leading", nil)
		if err := writes(ctx, mgr); err != nil {
			return err
		}
		say("done", nil)
		<-ctx.Done()
		return nil
	})
	if err := mgr.Add(leads); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

// writes does once what controllers do: create, read, update, patch, delete, and the status of a custom resource.
func writes(ctx context.Context, mgr manager.Manager) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	direct, err := client.New(mgr.GetConfig(), client.Options{Scheme: mgr.GetScheme()})
	if err != nil {
		return err
	}
	config := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "from-go"},
		Data:       map[string]string{"a": "1"}, BinaryData: map[string][]byte{"b": {0, 255}},
	}
	if err := direct.Create(ctx, config); err != nil {
		return fmt.Errorf("create: %w", err)
	}
	again := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "from-go"}}
	if err := direct.Create(ctx, again); !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("an object is created twice: %w", err)
	}
	more := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: "from-go-2", Labels: map[string]string{"from": "go"},
	}}
	if err := direct.Create(ctx, more); err != nil {
		return fmt.Errorf("create a second one: %w", err)
	}
	config.Data["a"] = "2"
	if err := direct.Update(ctx, config); err != nil {
		return fmt.Errorf("update: %w", err)
	}
	stale := config.DeepCopy()
	stale.ResourceVersion = "1"
	if err := direct.Update(ctx, stale); !apierrors.IsConflict(err) {
		return fmt.Errorf("a stale update is not a conflict: %w", err)
	}
	absent := types("absent")
	if err := direct.Get(ctx, absent, &corev1.ConfigMap{}); !apierrors.IsNotFound(err) {
		return fmt.Errorf("an absent object is not reported as absent: %w", err)
	}
	var pool unstructured.Unstructured
	pool.SetAPIVersion("tuist.dev/v1alpha1")
	pool.SetKind("RunnerPool")
	if err := direct.Get(ctx, types("mac"), &pool); err != nil {
		return fmt.Errorf("get a custom resource: %w", err)
	}
	before := pool.DeepCopy()
	if err := unstructured.SetNestedField(pool.Object, int64(3), "status", "observedReplicas"); err != nil {
		return err
	}
	if err := direct.Status().Patch(ctx, &pool, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("patch the status of a custom resource: %w", err)
	}
	partial := &metav1.PartialObjectMetadataList{}
	partial.SetGroupVersionKind(pool.GroupVersionKind())
	if err := direct.List(ctx, partial, client.InNamespace(namespace)); err != nil {
		return fmt.Errorf("list the metadata of a custom resource: %w", err)
	}
	say("listed", map[string]any{"metadata": len(partial.Items)})
	var maps corev1.ConfigMapList
	if err := direct.List(ctx, &maps, client.InNamespace(namespace), client.Limit(1)); err != nil {
		return fmt.Errorf("list: %w", err)
	}
	say("listed", map[string]any{"items": len(maps.Items), "continue": maps.Continue != "", "remaining": *maps.RemainingItemCount})
	preconditions := client.Preconditions{UID: &config.UID}
	if err := direct.Delete(ctx, config, preconditions); err != nil {
		return fmt.Errorf("delete: %w", err)
	}
	labels := client.MatchingLabels{"from": "go"}
	if err := direct.DeleteAllOf(ctx, &corev1.ConfigMap{}, client.InNamespace(namespace), labels); err != nil {
		return fmt.Errorf("delete by label: %w", err)
	}
	return nil
}

func types(name string) client.ObjectKey {
	return client.ObjectKey{Namespace: namespace, Name: name}
}

// pods fills a pool while it leads, without any other precaution than its lease.
func pods(ctx context.Context, pool string) error {
	mgr, err := newManager()
	if err != nil {
		return err
	}
	direct, err := client.New(rest.CopyConfig(mgr.GetConfig()), client.Options{Scheme: mgr.GetScheme()})
	if err != nil {
		return err
	}
	fill := manager.RunnableFunc(func(ctx context.Context) error {
		say("leading", nil)
		defer say("stopped", nil)
		for ctx.Err() == nil {
			if err := fillOnce(ctx, direct, pool); err != nil && ctx.Err() == nil {
				say("failed", map[string]any{"error": err.Error()})
			}
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
		}
		return nil
	})
	if err := mgr.Add(fill); err != nil {
		return err
	}
	say("waiting", nil)
	return mgr.Start(ctx)
}

func fillOnce(ctx context.Context, direct client.Client, name string) error {
	var pool unstructured.Unstructured
	pool.SetAPIVersion("tuist.dev/v1alpha1")
	pool.SetKind("RunnerPool")
	if err := direct.Get(ctx, types(name), &pool); err != nil {
		return err
	}
	wanted, _, err := unstructured.NestedInt64(pool.Object, "spec", "replicas")
	if err != nil {
		return err
	}
	var found corev1.PodList
	labels := client.MatchingLabels{"tuist.dev/runner-pool": name}
	if err := direct.List(ctx, &found, client.InNamespace(namespace), labels); err != nil {
		return err
	}
	for missing := wanted - int64(len(found.Items)); missing > 0; missing-- {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: namespace, GenerateName: name + "-runner-",
				Labels: map[string]string{"tuist.dev/runner": "true", "tuist.dev/runner-pool": name},
			},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "runner", Image: "registry.example/mac:1"}}},
		}
		if err := direct.Create(ctx, pod); err != nil {
			return err
		}
		say("created", map[string]any{"name": pod.Name})
	}
	return nil
}
