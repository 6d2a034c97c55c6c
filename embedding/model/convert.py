"""Converts model.onnx to model.safetensors, which the program reads in place.

    pip install onnx numpy
    python convert.py model.onnx model.safetensors

Integers and scales stay what they are. The matrices of query, key and value become one, and
each matrix is cut into panels of 32 outputs, which the program multiplies one after the other.
"""

import json
import re
import sys

import numpy
import onnx
from onnx import numpy_helper

ENCODER = "inner.encoder.layer."
PANEL = 32
source, target = sys.argv[1:]
graph = onnx.load(source).graph
arrays = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
tensors = {}

for name in ("word_embeddings", "position_embeddings"):
    tensors[f"{name}.weight"] = arrays[f"inner.embeddings.{name}.weight_q"]
    tensors[f"{name}.scale"] = arrays[f"inner.embeddings.{name}.weight_scale"].ravel()
tensors["token_type_embeddings"] = arrays["inner.embeddings.token_type_embeddings.weight"]
tensors["norm.weight"] = arrays["inner.embeddings.LayerNorm.weight"]
tensors["norm.bias"] = arrays["inner.embeddings.LayerNorm.bias"]

# A matrix has no name in the graph: it is the factor of the product that its bias is added to.
products = {node.output[0]: node.input[1] for node in graph.node if node.op_type == "MatMul"}
matrices = {
    node.input[1].removesuffix(".bias"): products[node.input[0]]
    for node in graph.node
    if node.op_type == "Add" and node.input[1].startswith(ENCODER)
}


def linear(target_name, *layers):
    weights = numpy.concatenate([arrays[matrices[layer] + "_q"] for layer in layers], axis=1)
    scales = [arrays[matrices[layer] + "_scale"].ravel() for layer in layers]
    panels = weights.reshape(len(weights), -1, PANEL).transpose(1, 0, 2)
    tensors[f"{target_name}.weight"] = panels
    tensors[f"{target_name}.scale"] = numpy.concatenate(scales)
    tensors[f"{target_name}.bias"] = numpy.concatenate([arrays[f"{layer}.bias"] for layer in layers])


for layer in range(len({re.match(r"\d+", name.removeprefix(ENCODER))[0] for name in matrices})):
    base = f"{ENCODER}{layer}."
    attention = [f"{base}attention.self.{part}" for part in ("query", "key", "value")]
    linear(f"layer.{layer}.attention", *attention)
    linear(f"layer.{layer}.attention_output", f"{base}attention.output.dense")
    linear(f"layer.{layer}.intermediate", f"{base}intermediate.dense")
    linear(f"layer.{layer}.output", f"{base}output.dense")
    for norm, of in (("attention_norm", "attention.output"), ("output_norm", "output")):
        tensors[f"layer.{layer}.{norm}.weight"] = arrays[f"{base}{of}.LayerNorm.weight"]
        tensors[f"layer.{layer}.{norm}.bias"] = arrays[f"{base}{of}.LayerNorm.bias"]

DTYPES = {"int8": ("I8", "i1"), "float32": ("F32", "<f4")}
header, body = {}, b""
for name, array in tensors.items():
    dtype, stored = DTYPES[array.dtype.name]
    data = numpy.ascontiguousarray(array, dtype=stored).tobytes()
    offsets = [len(body), len(body) + len(data)]
    header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": offsets}
    body += data
text = json.dumps(header, separators=(",", ":")).encode()
text += b" " * (-len(text) % 8)
with open(target, "wb") as file:
    file.write(len(text).to_bytes(8, "little") + text + body)
