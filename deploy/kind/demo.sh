#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# The demo on a kind cluster of one node: makes the cluster with the gate DRAConsumableCapacity on, loads the images, installs
# the chart, applies the manifests of demo/ and prints what the pods said. GPUs are simulated (simgpud runs here, the node
# reaches it through a mount) or the machine's own (docker's default runtime must be NVIDIA's, with
# accept-nvidia-visible-devices-as-volume-mounts). What it made is taken away again at its end, unless --keep.
#
# usage: deploy/kind/demo.sh [--kubernetes 1.34|1.36] [--gpus simulated|real] [--name CLUSTER] [--keep]
#
# KIND_IMAGE: the node image (default: kindest/node:v<version>.0). Needs kind, kubectl, helm, docker, and `make image` before.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
build=${ALIQUOT_BUILD:-$PWD/build}
kubernetes=1.34 gpus=simulated name=aliquot keep=
ready_s=${ALIQUOT_KIND_WAIT_S:-120}

fail() {
    echo "kind: $*" >&2
    exit 1
}

while [ $# -gt 0 ]; do
    case $1 in
    --kubernetes | --gpus | --name) [ -n "${2:-}" ] || fail "$1 needs a value" ;;&
    --kubernetes) kubernetes=$2 && shift ;;
    --gpus) gpus=$2 && shift ;;
    --name) name=$2 && shift ;;
    --keep) keep=yes ;;
    -h | --help) sed -n 's/^# usage: /usage: /p' "${BASH_SOURCE[0]}" && exit 0 ;;
    *) fail "$1 is not an option; see --help" ;;
    esac
    shift
done
case $kubernetes in 1.34 | 1.35 | 1.36) ;; *) fail "--kubernetes: $kubernetes is not 1.34, 1.35 or 1.36" ;; esac
case $gpus in simulated | real) ;; *) fail "--gpus: $gpus is neither simulated nor real" ;; esac
for command in kind kubectl helm docker; do
    command -v "$command" >/dev/null || fail "$command is not installed"
done
for file in image/aliquot.tar sim/simgpud sim/simctl demo/alq-demo-report; do
    [ -e "$build/$file" ] || fail "$build/$file is missing; run make image first"
done

# It would be taken away at the end.
if kind get clusters 2>/dev/null | grep -qxF -- "$name"; then
    fail "there is a cluster $name already: give another --name, or first kind delete cluster --name $name"
fi

work=$(mktemp -d /tmp/alq-kind-XXXXXX)
export KUBECONFIG=$work/kubeconfig
simgpud=
clean() {
    kind delete cluster --name "$name" || true
    [ -z "$simgpud" ] || kill "$simgpud" 2>/dev/null || true
    rm -rf "$work"
}
trap clean EXIT

# wait_for WHAT COMMAND...: until the command succeeds.
wait_for() {
    local what=$1 end=$((SECONDS + ready_s))
    shift
    until "$@" >/dev/null 2>&1; do
        [ $SECONDS -lt $end ] || fail "waited $ready_s s in vain for $what"
        sleep 0.2
    done
}

# ---- GPUs, and how the node has them

if [ "$gpus" = simulated ]; then
    mkdir "$work/sim"
    "$build/sim/simctl" install-root --config demo/gpus.json "$work/driver" >/dev/null
    "$build/sim/simgpud" --config demo/gpus.json --run-dir "$work/sim" >"$work/simgpud.log" 2>&1 &
    simgpud=$!
    wait_for "simgpud ($work/simgpud.log)" test -S "$work/sim/simgpud.sock"
    mounts="
  - {hostPath: $work/driver, containerPath: /opt/simgpu/driver}
  - {hostPath: $work/sim, containerPath: /opt/simgpu/run}"
    cat >"$work/values.yaml" <<YAML
driverRoot: /opt/simgpu/driver
config:
  contextEstimate: 320Mi
  extraMounts:
  - {hostPath: /opt/simgpu/run, containerPath: /run/simgpu, options: [rw, bind]}
extraVolumes:
- {name: simgpu, hostPath: {path: /opt/simgpu/run, type: Directory}}
extraVolumeMounts:
- {name: simgpu, mountPath: /run/simgpu}
YAML
else
    # NVIDIA's runtime takes this mount for "all devices", and puts devices and driver into the node.
    mounts="
  - {hostPath: /dev/null, containerPath: /var/run/nvidia-container-devices/all}"
    echo 'privileged: true # the node is a container itself: no runtime of NVIDIA in it gives devices to pods' >"$work/values.yaml"
fi

# ---- the cluster: containerd of these nodes is 2.x, where CDI is on

cat >"$work/kind.yaml" <<YAML
kind: Cluster
apiVersion: kind.x-k8s.io/v1alpha4
featureGates:
  DRAConsumableCapacity: true
nodes:
- role: control-plane
  extraMounts:$mounts
YAML
kind create cluster --name "$name" --image "${KIND_IMAGE:-kindest/node:v$kubernetes.0}" --config "$work/kind.yaml" --wait "${ready_s}s"

/usr/bin/python3 tests/e2e/image.py "$work/demo.tar" "$build"/demo/alq-demo-{report,bisect,busy}
for archive in "$build/image/aliquot.tar" "$work/demo.tar"; do
    kind load image-archive --name "$name" "$archive"
done

# ---- Aliquot, and the demo

helm install aliquot deploy/helm/aliquot --namespace aliquot --create-namespace --values "$work/values.yaml" --wait --timeout "${ready_s}s"
slices() { kubectl get resourceslices -o name | grep -q .; }
wait_for "ResourceSlices" slices
kubectl apply -f demo/manifests/10-claims.yaml
sed 's|image: aliquot-demo$|image: docker.io/library/aliquot-demo:e2e\n    imagePullPolicy: Never|' demo/manifests/20-pods.yaml | kubectl apply -f -
kubectl wait pod --all --for=jsonpath='{.status.phase}'=Succeeded --timeout=300s
mapfile -t pods < <(kubectl get pods -o name)
for pod in "${pods[@]}"; do
    echo "== $pod"
    kubectl logs "$pod" --all-containers
done

if [ -n "$keep" ]; then
    trap - EXIT
    echo "kind: it goes on: export KUBECONFIG=$KUBECONFIG; in the end: kind delete cluster --name $name${simgpud:+; kill $simgpud}; rm -rf $work"
fi
