#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# The checks that need a real GPU, in one self-contained script: builds the library and the demo's programs with the
# compiler alone (no packages), runs them bare and under limits from HAMi-core's environment, and ends with a table.
# Needs gcc and NVIDIA's driver; leaves the card's settings alone. The full log and the table go to $OUT (default
# build/gpu). Exit status 1 when a check failed. It runs as well on the simulated driver (tests/gpu/README.md).

set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
out=${OUT:-build/gpu}
seconds=${SECONDS_PER_RUN:-3}
work=$(mktemp -d /tmp/alq-gpu-XXXXXX)
trap 'rm -rf "$work"' EXIT
mkdir -p "$out"
exec > >(tee "$out/run.log") 2>&1
failed=0
rows=()

row() { # RESULT CHECK DETAIL
    rows+=("$(printf '%-6s %-44s %s' "$1" "$2" "$3")")
    [ "$1" = FAILED ] && failed=1
    return 0
}

build() {
    local machine
    machine=$(uname -m)
    local sources
    mapfile -t sources < <(find src/vgpu -name '*.c')
    gcc -std=gnu17 -O2 -fPIC -shared -D_GNU_SOURCE -Iinclude -Isrc -ffreestanding -fvisibility=hidden -fno-stack-protector \
        -U_FORTIFY_SOURCE -fno-builtin-memcpy -fno-tree-loop-distribute-patterns -ftls-model=initial-exec -fno-math-errno \
        -nostdlib -Wl,-z,defs -Wl,-z,now -Wl,-z,nodelete -Wl,--hash-style=both -Wl,-Bsymbolic \
        -Wl,--version-script=src/vgpu/libvgpu.map -o "$work/libvgpu.so" \
        "${sources[@]}" "src/vgpu/doors/$machine.S" src/vgpu/entry/entry.S || return 1
    local program
    for program in demo/workload/report demo/workload/bisect tests/gpu/load; do
        gcc -std=gnu17 -O2 -D_GNU_SOURCE -Iinclude -o "$work/${program##*/}" "$program.c" demo/workload/gpu.c \
            -ldl -lpthread || return 1
    done
}

limited() { # MEMORY CORES PROGRAM ARGS...
    local memory=$1 cores=$2
    shift 2
    CUDA_VISIBLE_DEVICES=0 CUDA_DEVICE_MEMORY_LIMIT=$memory CUDA_DEVICE_SM_LIMIT=$cores GPU_CORE_UTILIZATION_POLICY=force \
        CUDA_DEVICE_MEMORY_SHARED_CACHE="$work/cache-$memory-$cores" LD_PRELOAD="$work/libvgpu.so" "$@"
}

field() { # NAME < lines of key=value
    sed -n "s/.*[ ]$1=\([^ ]*\).*/\1/p" | head -n 1
}

build || {
    echo "the build failed"
    exit 1
}

echo "== bare"
bare=$(CUDA_VISIBLE_DEVICES=0 "$work/report") || {
    echo "no usable GPU: $bare"
    exit 1
}
echo "$bare"

echo "== under the library, no limit"
none=$(CUDA_VISIBLE_DEVICES=0 LD_PRELOAD="$work/libvgpu.so" "$work/report")
echo "$none"
for name in cuda_device_total_bytes cuda_total_bytes nvml_total_bytes; do
    if [ "$(field $name <<<"$none")" = "$(field $name <<<"$bare")" ]; then
        row ok "no limit: $name as bare" "$(field $name <<<"$none")"
    else
        row FAILED "no limit: $name as bare" "$(field $name <<<"$none") against $(field $name <<<"$bare")"
    fi
done

echo "== memory, 4 GiB"
limit=$((4 << 30))
view=$(limited 4Gi 100 "$work/report")
echo "$view"
for name in cuda_device_total_bytes cuda_total_bytes nvml_total_bytes; do
    if [ "$(field $name <<<"$view")" = "$limit" ]; then
        row ok "4Gi: $name" "$limit"
    else
        row FAILED "4Gi: $name" "$(field $name <<<"$view")"
    fi
done
taken=$(limited 4Gi 100 "$work/bisect")
echo "$taken"
sum=$(field sum_bytes <<<"$taken")
if [ -n "$sum" ] && [ "$sum" -gt $((limit / 2)) ] && [ "$sum" -le "$limit" ]; then
    row ok "4Gi: largest sum admitted" "$sum"
else
    row FAILED "4Gi: largest sum admitted" "${sum:-none}"
fi

echo "== calls"
calls() { # NAME LINE
    row shown "$1: a launch, an event record" "$(field launch_ns <<<"$2") ns, $(field record_ns <<<"$2") ns"
}
bare=$(CUDA_VISIBLE_DEVICES=0 "$work/load" calls)
held=$(limited 8Gi 90 "$work/load" calls)
echo "$bare"
echo "$held"
calls bare "$bare"
calls "90 %" "$held"

# Kernels of real work, calibrated bare. What a share got is its completed work; NVML's figure stands beside it.
completed() { # LINE
    awk -v k="$(field kernels <<<"$1")" -v us="$(field kernel_us <<<"$1")" -v s="$(field seconds <<<"$1")" \
        'BEGIN { if (s > 0) printf "%.1f", k * us / s / 10000 }'
}

judge() { # CHECK PCT LIMIT DETAIL
    # At 100 % only that nothing is lost beyond launch gaps.
    if awk -v p="${2:-0}" -v c="$3" 'BEGIN { d = p - c; exit !(d < 5 && d > (c == 100 ? -20 : -5)) }'; then
        row ok "$1" "$2 % completed$4"
    else
        row FAILED "$1" "${2:-none} % completed$4"
    fi
}

nvml_start() {
    nvml=
    command -v nvidia-smi >/dev/null || return 0
    nvidia-smi -i 0 --query-gpu=utilization.gpu --format=csv,noheader,nounits -lms 200 >"$work/nvml" 2>/dev/null &
    nvml=$!
}

nvml_end() { # prints ", NVML P %" of the samples but for the first second
    [ -n "$nvml" ] || return 0
    kill "$nvml" 2>/dev/null
    wait "$nvml" 2>/dev/null
    awk 'NR > 5 { sum += $1; n++ } END { if (n) printf ", NVML %.1f %%", sum / n }' "$work/nvml"
}

# NVML shows also what others do, so its figure is shown and not judged.
if [ -n "${COMPUTE_LIMITS-x}" ]; then
    loops=$(field loops <<<" $(CUDA_VISIBLE_DEVICES=0 "$work/load" calibrate)")
    for cores in ${COMPUTE_LIMITS-100 10 30 50 80}; do
        for us in ${KERNELS_US-50 1000 20000}; do
            for kind in eager graph; do
                echo "== compute, $cores %, $us us, $kind"
                nvml_start
                ran=$(limited 8Gi "$cores" "$work/load" time "$us" "$kind" "$seconds" "$loops")
                seen=$(nvml_end)
                echo "$ran$seen"
                judge "$cores %, $us us, $kind" "$(completed "$ran")" "$cores" "$seen"
            done
        done
    done
    for us in ${KERNELS_US-50 1000 20000}; do
        echo "== compute, 30 % beside 60 %, $us us"
        limited 8Gi 60 "$work/load" time "$us" eager "$seconds" "$loops" >"$work/other" &
        other=$!
        first=$(limited 8Gi 30 "$work/load" time "$us" eager "$seconds" "$loops")
        wait "$other"
        echo "$first"
        cat "$work/other"
        # Without a daemon each is charged for the other's turns too: never above, and at least a third.
        for pair in "30 $(completed "$first")" "60 $(completed "$(cat "$work/other")")"; do
            if awk -v c="${pair% *}" -v p="${pair#* }" 'BEGIN { exit !(p < c + 5 && p > c / 3) }'; then
                row ok "${pair% *} % of two tenants, $us us" "${pair#* } % completed"
            else
                row FAILED "${pair% *} % of two tenants, $us us" "${pair#* } % completed"
            fi
        done
    done
fi

printf '\n%s\n' "$(command -v nvidia-smi >/dev/null && nvidia-smi --query-gpu=name,driver_version --format=csv,noheader)"
printf '%s\n' "${rows[@]}" | tee "$out/table.txt"
exit $failed
