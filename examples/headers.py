# SPDX-License-Identifier: Apache-2.0
"""Write GGUF headers of three models, with their true shapes and types and no data: 30 kB instead of GB.

    python headers.py FOLDER

makes qwen3-8b.gguf, gpt-oss-20b.gguf, qwen3-coder-30b.gguf, and qwen3-8b-v-f16.gguf, which has attn_v in F16.
Shapes are those of the models' public config.json. Types are the usual recipes of llama.cpp: Q4_K_M gives
attn_v and ffn_down Q6_K in the first and the last eighth of the layers and in every third between, the head
Q6_K, all other matrices Q4_K; gpt-oss has its experts in MXFP4, as they were trained, and all other matrices
in Q8_0. Norms, biases and routers are F32.
"""

import sys
from pathlib import Path

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type


def q4_k_m(layer, layers):
    """The type of attn_v and ffn_down in one layer of a Q4_K_M file."""
    eighth = layers // 8
    more = layer < eighth or layer >= 7 * layers // 8 or (layer - eighth) % 3 == 2
    return Type.Q6_K if more else Type.Q4_K


class Header:
    """A GGUF file being made: keys and tensors, shapes outermost axis first."""

    def __init__(self, path, architecture, name):
        self.writer = gguf.GGUFWriter(path, architecture)
        self.writer.add_name(name)

    def add(self, name, *shape, kind=Type.F32):
        """Add a tensor by its shape and type alone."""
        packed = gguf.quant_shape_to_byte_shape(shape, kind)
        self.writer.add_tensor_info(name, packed, np.dtype(np.uint8), int(np.prod(packed)), kind)

    def close(self):
        """Write the header, the keys and the list of tensors, and no data."""
        self.writer.write_header_to_file()
        self.writer.write_kv_data_to_file()
        self.writer.write_ti_data_to_file()
        self.writer.close()


def shapes(writer, *, layers, width, heads, kv_heads, head, context, experts=0, used=0):
    """Add the keys that say how large the model is."""
    writer.add_block_count(layers)
    writer.add_context_length(context)
    writer.add_embedding_length(width)
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_key_length(head)
    writer.add_value_length(head)
    if experts:
        writer.add_expert_count(experts)
        writer.add_expert_used_count(used)


def qwen3_8b(path, v_in_f16=False):
    """Qwen/Qwen3-8B in Q4_K_M; optionally with attn_v in F16, which the published 4.87 GB suggest."""
    layers, width, heads, kv, head, inner, words = 36, 4096, 32, 8, 128, 12_288, 151_936
    made = Header(path, "qwen3", "Qwen3 8B")
    shapes(made.writer, layers=layers, width=width, heads=heads, kv_heads=kv, head=head, context=40_960)
    made.writer.add_feed_forward_length(inner)
    made.add("token_embd.weight", words, width, kind=Type.Q4_K)
    made.add("output_norm.weight", width)
    made.add("output.weight", words, width, kind=Type.Q6_K)
    for n in range(layers):
        more = q4_k_m(n, layers)
        made.add(f"blk.{n}.attn_norm.weight", width)
        made.add(f"blk.{n}.attn_q.weight", heads * head, width, kind=Type.Q4_K)
        made.add(f"blk.{n}.attn_k.weight", kv * head, width, kind=Type.Q4_K)
        made.add(f"blk.{n}.attn_v.weight", kv * head, width, kind=Type.F16 if v_in_f16 else more)
        made.add(f"blk.{n}.attn_output.weight", width, heads * head, kind=Type.Q4_K)
        made.add(f"blk.{n}.attn_q_norm.weight", head)
        made.add(f"blk.{n}.attn_k_norm.weight", head)
        made.add(f"blk.{n}.ffn_norm.weight", width)
        made.add(f"blk.{n}.ffn_gate.weight", inner, width, kind=Type.Q4_K)
        made.add(f"blk.{n}.ffn_up.weight", inner, width, kind=Type.Q4_K)
        made.add(f"blk.{n}.ffn_down.weight", width, inner, kind=more)
    made.close()


def gpt_oss_20b(path):
    """openai/gpt-oss-20b: experts in MXFP4, all other matrices in Q8_0, every second layer with a window."""
    layers, width, heads, kv, head, inner, words = 24, 2880, 64, 8, 64, 2880, 201_088
    experts, used = 32, 4
    made = Header(path, "gpt-oss", "gpt-oss 20B")
    shapes(
        made.writer,
        layers=layers,
        width=width,
        heads=heads,
        kv_heads=kv,
        head=head,
        context=131_072,
        experts=experts,
        used=used,
    )
    made.writer.add_expert_feed_forward_length(inner)
    made.writer.add_sliding_window(128)
    made.add("token_embd.weight", words, width, kind=Type.Q8_0)
    made.add("output_norm.weight", width)
    made.add("output.weight", words, width, kind=Type.Q8_0)
    for n in range(layers):
        made.add(f"blk.{n}.attn_norm.weight", width)
        made.add(f"blk.{n}.post_attention_norm.weight", width)
        made.add(f"blk.{n}.attn_sinks.weight", heads)
        for part, rows, columns in (
            ("attn_q", heads * head, width),
            ("attn_k", kv * head, width),
            ("attn_v", kv * head, width),
            ("attn_output", width, heads * head),
        ):
            made.add(f"blk.{n}.{part}.weight", rows, columns, kind=Type.Q8_0)
            made.add(f"blk.{n}.{part}.bias", rows)
        made.add(f"blk.{n}.ffn_gate_inp.weight", experts, width)
        made.add(f"blk.{n}.ffn_gate_inp.bias", experts)
        for part, rows, columns in (
            ("ffn_gate_exps", inner, width),
            ("ffn_up_exps", inner, width),
            ("ffn_down_exps", width, inner),
        ):
            made.add(f"blk.{n}.{part}.weight", experts, rows, columns, kind=Type.MXFP4)
            made.add(f"blk.{n}.{part}.bias", experts, rows)
    made.close()


def qwen3_coder_30b(path):
    """Qwen/Qwen3-Coder-30B-A3B-Instruct in Q4_K_M: 8 of 128 experts."""
    layers, width, heads, kv, head, inner, words = 48, 2048, 32, 4, 128, 768, 151_936
    experts, used = 128, 8
    made = Header(path, "qwen3moe", "Qwen3 Coder 30B A3B")
    shapes(
        made.writer,
        layers=layers,
        width=width,
        heads=heads,
        kv_heads=kv,
        head=head,
        context=262_144,
        experts=experts,
        used=used,
    )
    made.writer.add_expert_feed_forward_length(inner)
    made.add("token_embd.weight", words, width, kind=Type.Q4_K)
    made.add("output_norm.weight", width)
    made.add("output.weight", words, width, kind=Type.Q6_K)
    for n in range(layers):
        more = q4_k_m(n, layers)
        made.add(f"blk.{n}.attn_norm.weight", width)
        made.add(f"blk.{n}.attn_q.weight", heads * head, width, kind=Type.Q4_K)
        made.add(f"blk.{n}.attn_k.weight", kv * head, width, kind=Type.Q4_K)
        made.add(f"blk.{n}.attn_v.weight", kv * head, width, kind=more)
        made.add(f"blk.{n}.attn_output.weight", width, heads * head, kind=Type.Q4_K)
        made.add(f"blk.{n}.attn_q_norm.weight", head)
        made.add(f"blk.{n}.attn_k_norm.weight", head)
        made.add(f"blk.{n}.ffn_norm.weight", width)
        made.add(f"blk.{n}.ffn_gate_inp.weight", experts, width)
        made.add(f"blk.{n}.ffn_gate_exps.weight", experts, inner, width, kind=Type.Q4_K)
        made.add(f"blk.{n}.ffn_up_exps.weight", experts, inner, width, kind=Type.Q4_K)
        made.add(f"blk.{n}.ffn_down_exps.weight", experts, width, inner, kind=more)
    made.close()


def write_all(folder):
    """Write every header into a folder, made if need be; return their paths."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    makers = {
        "qwen3-8b.gguf": qwen3_8b,
        "qwen3-8b-v-f16.gguf": lambda path: qwen3_8b(path, v_in_f16=True),
        "gpt-oss-20b.gguf": gpt_oss_20b,
        "qwen3-coder-30b.gguf": qwen3_coder_30b,
    }
    for name, make in makers.items():
        make(folder / name)
    return [folder / name for name in makers]


if __name__ == "__main__":
    for written in write_all(sys.argv[1] if len(sys.argv) > 1 else "."):
        print(f"{written}: {written.stat().st_size:,} bytes")
