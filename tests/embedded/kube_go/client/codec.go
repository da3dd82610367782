package main

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"fmt"
	"io"

	authenticationv1 "k8s.io/api/authentication/v1"
	policyv1 "k8s.io/api/policy/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	jsonserializer "k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
)

const longest = 16 << 20 // bytes of a line

func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(scheme))
	utilruntime.Must(apiextensionsv1.AddToScheme(scheme))
	utilruntime.Must(metav1.AddMetaToScheme(scheme))
	utilruntime.Must(policyv1.AddToScheme(scheme))
	utilruntime.Must(authenticationv1.AddToScheme(scheme))
	return scheme
}

func serializers() (*jsonserializer.Serializer, *protobuf.Serializer) {
	scheme := newScheme()
	options := jsonserializer.SerializerOptions{Strict: true}
	return jsonserializer.NewSerializerWithOptions(jsonserializer.DefaultMetaFactory, scheme, scheme, options),
		protobuf.NewSerializer(scheme, scheme)
}

// lines calls do with each line and prints what it returns.
func lines(input io.Reader, do func([]byte) (map[string]any, error)) error {
	scanner := bufio.NewScanner(input)
	scanner.Buffer(make([]byte, 1<<20), longest)
	for scanner.Scan() {
		found, err := do(scanner.Bytes())
		if err != nil {
			found = map[string]any{"error": err.Error()}
		}
		say("codec", found)
	}
	return scanner.Err()
}

func encode(input io.Reader) error {
	text, proto := serializers()
	return lines(input, func(line []byte) (map[string]any, error) {
		obj, kind, err := text.Decode(line, nil, nil)
		if err != nil {
			return nil, fmt.Errorf("reading JSON: %w", err)
		}
		var out, back bytes.Buffer
		if err := proto.Encode(obj, &out); err != nil {
			return nil, fmt.Errorf("writing %s as protobuf: %w", kind, err)
		}
		if err := text.Encode(obj, &back); err != nil {
			return nil, fmt.Errorf("writing %s as JSON: %w", kind, err)
		}
		return map[string]any{
			"protobuf": base64.StdEncoding.EncodeToString(out.Bytes()),
			"json":     back.String(),
		}, nil
	})
}

func decode(input io.Reader) error {
	text, proto := serializers()
	return lines(input, func(line []byte) (map[string]any, error) {
		raw, err := base64.StdEncoding.DecodeString(string(line))
		if err != nil {
			return nil, err
		}
		obj, kind, err := proto.Decode(raw, nil, nil)
		if err != nil {
			return nil, fmt.Errorf("reading protobuf: %w", err)
		}
		obj.GetObjectKind().SetGroupVersionKind(*kind)
		var back bytes.Buffer
		if err := text.Encode(obj, &back); err != nil {
			return nil, fmt.Errorf("writing %s as JSON: %w", kind, err)
		}
		return map[string]any{"json": back.String()}, nil
	})
}
