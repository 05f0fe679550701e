/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shapes of arrays: what CUDA allows, and the bytes of the layout. Single-threaded.
 */
#include "cuda/array.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define U8 CU_AD_FORMAT_UNSIGNED_INT8
#define F32 CU_AD_FORMAT_FLOAT

static void layout_of_each_kind_has_its_rows_and_slices(void **state)
{
    static const struct {
        CUDA_ARRAY3D_DESCRIPTOR shape;
        uint64_t rows, slices, pitch, slice, bytes;
    } rows[] = {
        {{1, 0, 0, U8, 1, 0}, 1, 1, 64, 64, 512},
        {{1000, 0, 0, F32, 4, 0}, 1, 1, 16000, 16000, 16384},
        {{100, 60, 0, F32, 1, 0}, 60, 1, 448, 448 * 64, 448 * 64},
        {{64, 8, 3, U8, 1, 0}, 8, 3, 64, 512, 1536},
        {{16, 0, 5, U8, 2, CUDA_ARRAY3D_LAYERED}, 1, 5, 64, 64, 512},
        {{16, 16, 6, F32, 2, CUDA_ARRAY3D_CUBEMAP}, 16, 6, 128, 2048, 12288},
        {{32, 16, 0, CU_AD_FORMAT_NV12, 3, 0}, 24, 1, 64, 1536, 1536},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct CUarray_st a = {0};

        assert_int_equal(array_layout(&rows[i].shape, &a), CUDA_SUCCESS);
        assert_int_equal(a.rows, rows[i].rows);
        assert_int_equal(a.slices, rows[i].slices);
        assert_int_equal(a.pitch_bytes, rows[i].pitch);
        assert_int_equal(a.slice_bytes, rows[i].slice);
        assert_int_equal(a.bytes, rows[i].bytes);
    }
}

static void layout_of_what_cuda_forbids_is_refused(void **state)
{
    static const CUDA_ARRAY3D_DESCRIPTOR bad[] = {
        {0, 0, 0, U8, 1, 0},
        {1, 0, 0, (CUarray_format)77, 1, 0},
        {1, 0, 0, U8, 3, 0},
        {1, 0, 0, U8, 1, 0x100},
        {131073, 0, 0, U8, 1, 0},
        {131072, 65537, 0, U8, 1, 0},
        {16, 0, 16, U8, 1, 0},
        {16, 16, 16385, U8, 1, 0},
        {16, 16, 0, U8, 1, CUDA_ARRAY3D_LAYERED},
        {16, 16, 2049, U8, 1, CUDA_ARRAY3D_LAYERED},
        {16, 17, 6, U8, 1, CUDA_ARRAY3D_CUBEMAP},
        {16, 16, 12, U8, 1, CUDA_ARRAY3D_CUBEMAP},
        {16, 16, 7, U8, 1, CUDA_ARRAY3D_CUBEMAP | CUDA_ARRAY3D_LAYERED},
        {16, 0, 0, U8, 1, CUDA_ARRAY3D_TEXTURE_GATHER},
        {31, 16, 0, CU_AD_FORMAT_NV12, 3, 0},
        {32, 16, 0, CU_AD_FORMAT_NV12, 1, 0},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct CUarray_st a = {0};

        assert_int_equal(array_layout(&bad[i], &a), CUDA_ERROR_INVALID_VALUE);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layout_of_each_kind_has_its_rows_and_slices),
        cmocka_unit_test(layout_of_what_cuda_forbids_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
