// The schemas of Istio's objects, of the tests of docs/deploy/kubernetes/istio: scripts/setup-tests copies them.
module stentor/tests/package/istio

go 1.26.0

require istio.io/api v1.32.0
