"""The table of names: every example in its class, names of each engine, a user's own file."""

from pathlib import Path

import pytest

from draftworth.errors import UsageError
from draftworth.profiles.kernels import Kind, load_table, shipped

TABLE = load_table()
KINDS: list[Kind] = ["kernel", "op"]
ENTRIES = [(kind, entry) for kind in KINDS for entry in shipped()[kind]]


@pytest.mark.parametrize(
    ("kind", "entry"), ENTRIES, ids=lambda one: one["example"][:40] if isinstance(one, dict) else one
)
def test_every_entry_has_a_source_and_an_example_of_its_class(kind: Kind, entry: dict[str, str]) -> None:
    assert entry["source"]
    assert TABLE.classify(entry["example"], kind) == entry["class"]


@pytest.mark.parametrize(
    ("name", "its"),
    [
        ("ncclDevKernel_AllReduce_Sum_f16_TREE_LL(ncclDevKernelArgsStorage<4096ul>)", "all-reduce"),
        ("ncclSymDevKernel_AllReduce_AGxLLMC_R_sum_bf16(ncclSymDevArgs)", "all-reduce"),
        ("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "other collectives"),
        ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", "other collectives"),
        ("void vllm::cross_device_reduce_2stage<half, 8>(vllm::RankData*)", "all-reduce"),
        ("void marlin_moe_wna16::Marlin<__nv_bfloat16, 4L, 256>(int4 const*)", "experts"),
        ("void deep_gemm::sm90_fp8_gemm_1d2d_impl<0u, (deep_gemm::GemmType)0>(float*)", "matrix work"),
        ("void deep_gemm::sm90_fp8_gemm_1d2d_impl<0u, (deep_gemm::GemmType)1>(float*)", "experts"),
        (
            "void flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128, 64> >(flash::Flash_fwd_params)",
            "attention",
        ),
        ("void flashinfer::norm::FusedAddRMSNormKernel<8u, __nv_bfloat16>(__nv_bfloat16*)", "other"),
        ("void flashinfer::BatchDecodeWithPagedKVCacheKernel<(flashinfer::PosEncodingMode)0>(int)", "attention"),
        ("void flash_attn_ext_vec<128, 2, (ggml_type)1>(char const*)", "attention"),
        ("ampere_bf16_s16816gemm_bf16_64x64_ldg8_f2f_stages_64x6_tn", "matrix work"),
        ("void gemvx::kernel<int, int, __nv_bfloat16, float, false>(int)", "matrix work"),
        ("void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<SmemLayoutAtom> >(int)", "matrix work"),
        ("void mul_mat_vec_q<(ggml_type)8, 1, true, false>(void const*)", "matrix work"),
        ("triton_poi_fused_add_moe_forward_3", "other"),
        ("_compute_slot_mapping_kernel", "attention"),
        ("_gemma_fused_add_rmsnorm_kernel", "other"),
        ("_rmsnorm_fwd_kernel", "other"),
        ("_fwd_grouped_kernel_stage1", "attention"),
        ("void moe_finalize_all_reduce_kernel<__nv_bfloat16, 8>(int)", "all-reduce"),
        ("Memset (Device)", "copies"),
        # Inductor names its kernels after what was fused, the collective behind which they run too
        ("triton_red_fused__to_copy_add_all_reduce_mean_mul_pow_rsqrt_0", "other"),
        ("triton_poi_fused_all_gather_into_tensor_cat_1", "other"),
        ("triton_red_fused_all_reduce_argmax_2", "sampling"),
        ("triton_tem_fused_all_reduce_mm_3", "matrix work"),
        # ROCm
        ("Cijk_Ailk_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT16x16x512_MI16x16x1", "matrix work"),
        ("Custom_Cijk_Alik_Bljk_BBS_BH_MT256x256x64_MI16x16x1_gfx950", "matrix work"),
        ("void ck_tile::kentry<256, 1, ck_tile::FusedMoeGemmKernel<int> >(int)", "experts"),
        ("void ck_tile::kentry<256, 2, ck_tile::FmhaFwdKernel<int> >(int)", "attention"),
        ("kn_entry_2c_sbhd_cached_indirect_inplace", "other"),
        ("void aiter::kn_entry_1c_sbhd_uncached<aiter::OpUncachedFwd>(float*)", "other"),
        ("_ZN5aiter28pa_bf16_pertokenFp8_gqa10_2tg_4wE", "attention"),
        ("_ZN5aiter37bf16gemm_fp32bf16_tn_96x64_pf3_splitkE", "matrix work"),
        ("_ZN5aiter39fmoe_bf16_blockscaleFp8_g1u1_vs_silu_1tgE", "experts"),
        ("void vllm::paged_attention_ll4mi_QKV_mfma16_kernel<__hip_bfloat16>(int)", "attention"),
        ("void wvSplitK_hf_sml_<__hip_bfloat16, 64, 2>(int)", "matrix work"),
        ("__amd_rocclr_copyBuffer", "copies"),
        ("__amd_rocclr_fillBufferAligned", "copies"),
        ("CopyDeviceToHost", "copies"),
        ("void vllm::persistent_topk_kernel<2048>(float const*)", "attention"),
        ("void rocprim::ROCPRIM_400400_NS::detail::trampoline_kernel<int>(int)", "other"),
        ("void (anonymous namespace)::cunn_SpatialSoftMaxForward<float, float, float, int>(float*)", "other"),
        ("_remove_padding_kernel", "other"),
        ("who_knows", "not recognised"),
    ],
)
def test_names_of_engines_and_libraries(name: str, its: str) -> None:
    assert TABLE.classify(name) == its


@pytest.mark.parametrize(
    ("name", "its"),
    [
        ("cpp_fused_all_reduce_0", "other"),
        ("cpp_fused_argmax_all_gather_1", "sampling"),
        ("c10d::allreduce_", "all-reduce"),
        ("_C::shm_allreduce", "all-reduce"),
        ("_c10d_functional::all_gather_into_tensor", "other collectives"),
        ("## Call CompiledFxGraph abc ##", "other"),
    ],
)
def test_names_of_operations_of_a_cpu(name: str, its: str) -> None:
    assert TABLE.classify(name, "op") == its


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[kernel]]\nclass = 'gemm'\npattern = 'x'\n", r"\[\[kernel\]\] number 1: no class 'gemm'; one of all-reduce"),
        ("[[kernel]]\nclass = 'other'\n", "needs `class` and `pattern`"),
        ("[[op]]\nclass = 'host'\npattern = '('\n", "is no regular expression"),
        ("[[kernels]]\nclass = 'other'\npattern = 'x'\n", "`kernels` is unknown"),
        ("kernel = 3\n", "must be written"),
        ("[[kernel]]\nclass = 'other'\npattern = 'x'\nfoo = 1\n", "`foo` is unknown"),
        ("[[kernel]", "not TOML"),
    ],
)
def test_a_wrong_table_is_one_line(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=said):
        load_table(path)


def test_a_table_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        load_table(tmp_path / "none.toml")
