/* The right-hand sides of benchmarks/problems, with Jacobians written out. */
#include "problems.h"

#include <stddef.h>

/* --- small and stiff, dense ------------------------------------------------------------------------------------ */

static void rober(double t, const double *y, double *dy, const Data *data) {
  const double r1 = 0.04 * y[0], r2 = 3e7 * y[1] * y[1], r3 = 1e4 * y[1] * y[2];
  dy[0] = r3 - r1;
  dy[1] = r1 - r2 - r3;
  dy[2] = r2;
}

static void rober_jac(double t, const double *y, double **J, const Data *data) {
  const double by_b = 1e4 * y[2], by_c = 1e4 * y[1], square = 6e7 * y[1];
  J[0][0] = -0.04, J[0][1] = 0.04;
  J[1][0] = by_b, J[1][1] = -by_b - square, J[1][2] = square;
  J[2][0] = by_c, J[2][1] = -by_c;
}

static void hires(double t, const double *y, double *dy, const Data *data) {
  const double bound = 280.0 * y[5] * y[7];
  dy[0] = -1.71 * y[0] + 0.43 * y[1] + 8.32 * y[2] + 0.0007;
  dy[1] = 1.71 * y[0] - 8.75 * y[1];
  dy[2] = -10.03 * y[2] + 0.43 * y[3] + 0.035 * y[4];
  dy[3] = 8.32 * y[1] + 1.71 * y[2] - 1.12 * y[3];
  dy[4] = -1.745 * y[4] + 0.43 * (y[5] + y[6]);
  dy[5] = -bound + 0.69 * y[3] + 1.71 * y[4] - 0.43 * y[5] + 0.69 * y[6];
  dy[6] = bound - 1.81 * y[6];
  dy[7] = -bound + 1.81 * y[6];
}

static void hires_jac(double t, const double *y, double **J, const Data *data) {
  const double by_f = 280.0 * y[7], by_h = 280.0 * y[5];
  J[0][0] = -1.71, J[0][1] = 1.71;
  J[1][0] = 0.43, J[1][1] = -8.75, J[1][3] = 8.32;
  J[2][0] = 8.32, J[2][2] = -10.03, J[2][3] = 1.71;
  J[3][2] = 0.43, J[3][3] = -1.12, J[3][5] = 0.69;
  J[4][2] = 0.035, J[4][4] = -1.745, J[4][5] = 1.71;
  J[5][4] = 0.43, J[5][5] = -by_f - 0.43, J[5][6] = by_f, J[5][7] = -by_f;
  J[6][4] = 0.43, J[6][5] = 0.69, J[6][6] = -1.81, J[6][7] = 1.81;
  J[7][5] = -by_h, J[7][6] = by_h, J[7][7] = -by_h;
}

static void orego(double t, const double *y, double *dy, const Data *data) {
  dy[0] = 77.27 * (y[1] + y[0] * (1 - 8.375e-6 * y[0] - y[1]));
  dy[1] = (y[2] - (1 + y[0]) * y[1]) * (1 / 77.27);
  dy[2] = 0.161 * (y[0] - y[2]);
}

static void orego_jac(double t, const double *y, double **J, const Data *data) {
  J[0][0] = 77.27 * (1 - 2 * 8.375e-6 * y[0] - y[1]), J[0][1] = -y[1] / 77.27, J[0][2] = 0.161;
  J[1][0] = 77.27 * (1 - y[0]), J[1][1] = -(1 + y[0]) / 77.27;
  J[2][1] = 1 / 77.27, J[2][2] = -0.161;
}

static void van_der_pol(double t, const double *y, double *dy, const Data *data) {
  dy[0] = y[1];
  dy[1] = 1000.0 * (1 - y[0] * y[0]) * y[1] - y[0];
}

static void van_der_pol_jac(double t, const double *y, double **J, const Data *data) {
  J[0][1] = -2000.0 * y[0] * y[1] - 1;
  J[1][0] = 1, J[1][1] = 1000.0 * (1 - y[0] * y[0]);
}

/* The 25 reactions of air pollution: speed, first and second species (counted from 1; 0 for none). */
static const double K[25] = {0.35,   26.6,   1.23e4, 8.6e-4, 8.2e-4, 1.5e4,  1.3e-4, 2.4e4, 1.65e4,
                             9e3,    0.022,  1.2e4,  1.88,   1.63e4, 4.8e6,  3.5e-4, 0.0175, 1e8,
                             4.44e11, 1.24e3, 2.1,   5.78,   0.0474, 1.78e3, 3.12};
static const int FIRST[25] = {1, 2, 5, 7, 7, 7, 9, 9, 11, 11, 13, 10, 14, 1, 3, 4, 4, 16, 16, 17, 19, 19, 1, 19, 20};
static const int SECOND[25] = {0, 4, 2, 0, 0, 6, 0, 6, 2, 1, 0, 2, 0, 6, 0, 0, 0, 0, 0, 6, 0, 0, 4, 1, 0};

static void pollu_sums(const double *r, double *dy) {
  dy[0] = -r[0] - r[9] - r[13] - r[22] - r[23] + r[1] + r[2] + r[8] + r[10] + r[11] + r[21] + r[24];
  dy[1] = -r[1] - r[2] - r[8] - r[11] + r[0] + r[20];
  dy[2] = -r[14] + r[0] + r[16] + r[18] + r[21];
  dy[3] = -r[1] - r[15] - r[16] - r[22] + r[14];
  dy[4] = -r[2] + 2 * r[3] + r[5] + r[6] + r[12] + r[19];
  dy[5] = -r[5] - r[7] - r[13] - r[19] + r[2] + 2 * r[17];
  dy[6] = -r[3] - r[4] - r[5] + r[12];
  dy[7] = r[3] + r[4] + r[5] + r[6];
  dy[8] = -r[6] - r[7];
  dy[9] = -r[11] + r[6] + r[8];
  dy[10] = -r[8] - r[9] + r[7] + r[10];
  dy[11] = r[8];
  dy[12] = -r[10] + r[9];
  dy[13] = -r[12] + r[11];
  dy[14] = r[13];
  dy[15] = -r[17] - r[18] + r[15];
  dy[16] = -r[19];
  dy[17] = r[19];
  dy[18] = -r[20] - r[21] - r[23] + r[22] + r[24];
  dy[19] = -r[24] + r[23];
}

static void pollu(double t, const double *y, double *dy, const Data *data) {
  const double r[25] = {K[0] * y[0],         K[1] * y[1] * y[3],  K[2] * y[4] * y[1],   K[3] * y[6],
                        K[4] * y[6],         K[5] * y[6] * y[5],  K[6] * y[8],          K[7] * y[8] * y[5],
                        K[8] * y[10] * y[1], K[9] * y[10] * y[0], K[10] * y[12],        K[11] * y[9] * y[1],
                        K[12] * y[13],       K[13] * y[0] * y[5], K[14] * y[2],         K[15] * y[3],
                        K[16] * y[3],        K[17] * y[15],       K[18] * y[15],        K[19] * y[16] * y[5],
                        K[20] * y[18],       K[21] * y[18],       K[22] * y[0] * y[3],  K[23] * y[18] * y[0],
                        K[24] * y[19]};
  pollu_sums(r, dy);
}

static void pollu_jac(double t, const double *y, double **J, const Data *data) {
  for (int j = 0; j < 20; j++) { /* a column is the sum over the reactions' speeds differentiated by species j */
    double r[25] = {0};
    for (int i = 0; i < 25; i++) {
      if (FIRST[i] == j + 1) r[i] = K[i] * (SECOND[i] ? y[SECOND[i] - 1] : 1);
      if (SECOND[i] == j + 1) r[i] += K[i] * y[FIRST[i] - 1];
    }
    pollu_sums(r, J[j]);
  }
}

/* --- large, by columns; both Jacobians have bandwidth 2 --------------------------------------------------------- */

/* p: the first rate of every block, then the second, then the third */
static void blocks(double t, const double *y, double *dy, const Data *data) {
  const long m = data->n / 3;
  const double *k1 = data->p, *k2 = k1 + m, *k3 = k2 + m;
  for (long i = 0; i < m; i++) {
    const double *a = y + 3 * i;
    const double r1 = k1[i] * a[0], r2 = k2[i] * a[1] * a[1], r3 = k3[i] * a[1] * a[2];
    dy[3 * i] = r3 - r1;
    dy[3 * i + 1] = r1 - r2 - r3;
    dy[3 * i + 2] = r2;
  }
}

static int blocks_column(long j, const double *y, long *rows, double *values, const Data *data) {
  const long m = data->n / 3, i = j / 3, start = 3 * i;
  const double k1 = data->p[i], k2 = data->p[m + i], k3 = data->p[2 * m + i];
  const double b = y[start + 1], by_b = k3 * y[start + 2], by_c = k3 * b, square = 2 * k2 * b;
  for (int row = 0; row < 3; row++) rows[row] = start + row;
  if (j == start)
    values[0] = -k1, values[1] = k1, values[2] = 0;
  else if (j == start + 1)
    values[0] = by_b, values[1] = -by_b - square, values[2] = square;
  else
    values[0] = by_c, values[1] = -by_c, values[2] = 0;
  return 3;
}

/* p[0]: diffusion over the square of the grid's spacing; u, v of a point side by side; u = 1, v = 3 at the ends */
static void brusselator(double t, const double *y, double *dy, const Data *data) {
  const long n = data->n;
  const double spread = data->p[0];
  for (long i = 0; i < n; i += 2) {
    const double u = y[i], v = y[i + 1], uuv = u * u * v;
    const double left_u = i ? y[i - 2] : 1, left_v = i ? y[i - 1] : 3;
    const double right_u = i + 2 < n ? y[i + 2] : 1, right_v = i + 2 < n ? y[i + 3] : 3;
    dy[i] = 1 + uuv - 4 * u + spread * (left_u - 2 * u + right_u);
    dy[i + 1] = 3 * u - uuv + spread * (left_v - 2 * v + right_v);
  }
}

static int brusselator_column(long j, const double *y, long *rows, double *values, const Data *data) {
  const double spread = data->p[0];
  const long point = j - j % 2;
  const double u = y[point], v = y[point + 1];
  const double own[2][2] = {{2 * u * v - 4 - 2 * spread, 3 - 2 * u * v}, {u * u, -u * u - 2 * spread}};
  int count = 0;
  if (j >= 2) rows[count] = j - 2, values[count++] = spread;
  for (int row = 0; row < 2; row++) rows[count] = point + row, values[count++] = own[j % 2][row];
  if (j + 2 < data->n) rows[count] = j + 2, values[count++] = spread;
  return count;
}

const Problem problems[] = {
    {"rober", rober, rober_jac, NULL},
    {"hires", hires, hires_jac, NULL},
    {"orego", orego, orego_jac, NULL},
    {"van_der_pol", van_der_pol, van_der_pol_jac, NULL},
    {"pollu", pollu, pollu_jac, NULL},
    {"blocks", blocks, NULL, blocks_column},
    {"brusselator", brusselator, NULL, brusselator_column},
};
const int num_problems = sizeof problems / sizeof problems[0];
